"""Tables of Apache Arrow, which need the extra ``arrow``."""
