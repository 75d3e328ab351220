"""Small models to compare on: configs by rule, weights in which every element differs, and builders of batches."""
