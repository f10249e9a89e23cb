//! stub
/// f
#[derive(Debug, Default, Clone)]
pub struct FamilyFilter;
impl FamilyFilter {
    /// n
    /// # Errors
    /// n
    pub fn new(_: &[String], _: &[String], _: &[String]) -> Result<Self, String> {
        Ok(Self)
    }
}
impl FamilyFilter {
    /// e
    pub fn enabled(&self, _: &str, o: bool) -> bool {
        !o
    }
}
