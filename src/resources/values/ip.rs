//! stub
/// f
pub struct IpFamily;
impl IpFamily {
    /// t
    pub fn text(self) -> &'static str {
        "4"
    }
}
/// f
pub fn family(_: &str) -> Option<IpFamily> {
    Some(IpFamily)
}
