"""The suite: the estimator beside simple rivals, on development data, with few labels."""
