"""The examination of `torchreel share` and `torchreel audit`."""
