"""Pure objectives, one algorithm per file. Only ``conf/algorithm`` knows which exist."""
