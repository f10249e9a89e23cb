//! A read-only view of an object's text.

use super::page::Page;
use super::schema::Rendered;

/// The text of one object, in a page or just rendered.
#[derive(Clone, Copy, Debug)]
pub struct ObjectView<'a> {
    place: Place<'a>,
    series: u32,
}

#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    Paged(&'a Page, usize),
    Rendered(&'a Rendered),
}

impl<'a> ObjectView<'a> {
    pub(super) fn paged(page: &'a Page, slot: usize, series: u32) -> Self {
        Self { place: Place::Paged(page, slot), series }
    }

    /// Returns the number of series.
    pub fn series(&self) -> u64 {
        u64::from(self.series)
    }

    /// Returns the text between the name and the rest of each line.
    pub fn identity(&self) -> &'a [u8] {
        match self.place {
            Place::Paged(page, slot) => page.identity(slot),
            Place::Rendered(object) => &object.identity,
        }
    }

    /// Returns the lines of a family.
    pub fn family(&self, family: usize) -> &'a [u8] {
        match self.place {
            Place::Paged(page, slot) => page.lines(family, slot),
            Place::Rendered(object) => object.family(family),
        }
    }
}

impl<'a> From<&'a Rendered> for ObjectView<'a> {
    fn from(object: &'a Rendered) -> Self {
        Self { place: Place::Rendered(object), series: object.series }
    }
}
