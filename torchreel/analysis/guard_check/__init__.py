"""Which recorded guards an input would pass or fail, without the model and without running them."""
