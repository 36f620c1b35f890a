"""Frame bundles: what Dynamo needs to trace a frame again, without its data and secrets."""
