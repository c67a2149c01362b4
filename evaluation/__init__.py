"""Evidence: our own claims, what they are measured by, and the numbers in the documents."""
