//! Readers of expositions, for tests and fuzz targets.

pub mod samples;
pub mod text_converter;
