"""Studies behind the defaults: what was tried, and what validation said."""
