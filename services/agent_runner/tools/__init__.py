"""The tools that agents may use, and the one door through which they are called."""
