//! Tests of the models over the leaves of whole indexes.

mod cache;
mod figures;
mod models;
mod predictions;
mod tree;
