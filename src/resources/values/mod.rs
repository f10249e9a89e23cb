//! stub
pub mod ip;
pub mod label_name;
pub mod quantity;
pub mod resource_name;
