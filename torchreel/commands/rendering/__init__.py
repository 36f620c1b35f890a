"""Tools that the views share: streams, tables, text, failures, graphs."""
