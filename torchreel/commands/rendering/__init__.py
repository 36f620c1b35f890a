"""What several commands print: streams, tables, text, failures, graphs."""
