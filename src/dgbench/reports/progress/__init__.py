"""How training goes: what stands where, and curves over optimizer steps."""
