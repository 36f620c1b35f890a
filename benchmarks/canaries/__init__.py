"""The examination of redaction: canaries in programs, by place, way and level."""
