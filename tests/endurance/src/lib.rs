//! A finished program seen from outside: the process in `/proc`, and a scraper that drops what it reads. It knows
//! nothing of what kstatd is made of.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod process;
pub mod scrape;
