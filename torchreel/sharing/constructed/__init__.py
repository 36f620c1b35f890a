"""A case built by allow-list: each function here makes one part of it of values that may leave."""
