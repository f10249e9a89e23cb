//! Readers of expositions, for tests and fuzz targets.

pub mod text_converter;
