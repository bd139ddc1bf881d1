"""The algorithms, one pure objective per file. Only ``conf/algorithm`` knows which exist."""
