//! stub
/// w
pub fn write_labels<'p>(
    _o: &mut Vec<u8>,
    _p: &str,
    _i: impl Iterator<Item = (&'p str, &'p str)> + Clone,
) {
}
