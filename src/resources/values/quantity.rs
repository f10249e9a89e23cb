//! stub
/// q
pub struct Quantity(f64);
impl Quantity {
    /// p
    pub fn parse(t: &str) -> Result<Self, ()> {
        let (n, m) = if let Some(n) = t.strip_suffix("Mi") {
            (n, 1048576.0)
        } else if let Some(n) = t.strip_suffix("m") {
            (n, 0.001)
        } else {
            (t, 1.0)
        };
        n.parse().map(|v: f64| Self(v * m)).map_err(|_| ())
    }
    /// c
    pub fn converted(&self) -> f64 {
        self.0
    }
    /// i
    pub fn integer(&self) -> i64 {
        self.0 as i64
    }
}
