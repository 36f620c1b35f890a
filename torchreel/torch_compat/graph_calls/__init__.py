"""Functions and regions of torch's that Dynamo writes into graphs, besides operators."""
