//! stub
/// r
pub enum Reading {
    /// c
    Converted,
    /// i
    Integer,
}
/// c
pub struct Class {
    /// u
    pub unit: &'static str,
    /// p
    pub in_pods: Option<Reading>,
}
/// s
pub fn sanitise(s: &str) -> String {
    s.to_owned()
}
/// c
pub fn classes(n: &str) -> impl Iterator<Item = Class> {
    std::iter::once(if n == "cpu" {
        Class { unit: "core", in_pods: Some(Reading::Converted) }
    } else {
        Class { unit: "byte", in_pods: Some(Reading::Integer) }
    })
}
