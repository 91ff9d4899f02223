"""Bodies of requests and answers, one file a noun."""
