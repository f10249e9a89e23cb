//! A program observed from outside: its process in `/proc`, and a scraper that discards what it reads. Independent of
//! kstatd's code.
#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod process;
pub mod scrape;
