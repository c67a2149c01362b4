"""What a size takes, before anything is allocated."""
