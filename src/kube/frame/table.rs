//! Tables: how a server gives one text of each object beside its metadata, and nothing else of it
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>).
//!
//! A row has the object's metadata and the cells that a person would see. It becomes a whole object again,
//! as far as it goes: the metadata, and one cell where the object has that text. Tables are always JSON.

use super::message::WireError;
use super::scan::{elements, members};
use crate::resources::Column;
use crate::wire::view::{ObjectBytes, Str, decode, view};

view! {
    /// What is said of a column.
    pub struct Definition<'a> {
        name: Str<'a> = 1 "name",
    }
}

/// Makes objects of rows.
#[derive(Debug)]
pub(super) struct Table {
    column: Column,
    /// Which cell it is, once the table has said so.
    cell: Option<usize>,
    object: Vec<u8>,
}

impl Table {
    pub(super) fn new(column: Column) -> Self {
        Self { column, cell: None, object: Vec::new() }
    }

    /// Takes the definitions of the columns, which a watch gives with its first event only.
    ///
    /// # Errors
    /// The column is not among them, or they make no sense.
    pub(super) fn columns(&mut self, definitions: &[u8], offset: u64) -> Result<(), WireError> {
        if definitions == b"null" {
            return Ok(());
        }
        let (mut number, mut found) = (0, None);
        elements(definitions, offset, |definition| {
            let decoded = decode::<Definition<'_>>(ObjectBytes::Json(definition));
            if decoded.is_ok_and(|definition| *definition.name == *self.column.heading) {
                found.get_or_insert(number);
            }
            number += 1;
        })?;
        self.cell = found;
        found.map(|_| ()).ok_or(WireError::NoTable { missing: self.column.heading, offset })
    }

    /// The object of a row.
    ///
    /// # Errors
    /// It is no row, or lacks the object or the cell.
    pub(super) fn object(&mut self, row: &[u8], offset: u64) -> Result<&[u8], WireError> {
        let (mut cells, mut object): (&[u8], &[u8]) = (b"[]", b"");
        members(row, offset, |name, value| match name {
            b"\"cells\"" => cells = value,
            b"\"object\"" => object = value,
            _ => {}
        })?;
        let missing = |missing| WireError::NoTable { missing, offset };
        let wanted = self.cell.ok_or(missing("columnDefinitions"))?;
        let (mut number, mut cell): (usize, Option<&[u8]>) = (0, None);
        elements(cells, offset, |value| {
            if number == wanted {
                cell = Some(value);
            }
            number += 1;
        })?;
        let cell = cell.ok_or(missing(self.column.heading))?;
        let rest = object.strip_prefix(b"{").ok_or(missing("object"))?;
        self.object.clear();
        self.object.extend_from_slice(b"{\"");
        self.object.extend_from_slice(self.column.member.as_bytes());
        self.object.extend_from_slice(b"\":");
        self.object.extend_from_slice(cell);
        if !rest.trim_ascii_start().starts_with(b"}") {
            self.object.push(b',');
        }
        self.object.extend_from_slice(rest);
        Ok(&self.object)
    }

    /// The object of an event, which a server that has no tables gives as it is.
    ///
    /// # Errors
    /// It is a table without a row, or one that makes no sense.
    pub(super) fn of_event<'a>(
        &'a mut self,
        object: &'a [u8],
        offset: u64,
    ) -> Result<&'a [u8], WireError> {
        let (mut is_table, mut definitions, mut rows): (bool, &[u8], &[u8]) =
            (false, b"null", b"[]");
        members(object, offset, |name, value| match name {
            b"\"kind\"" => is_table = value == b"\"Table\"",
            b"\"columnDefinitions\"" => definitions = value,
            b"\"rows\"" => rows = value,
            _ => {}
        })?;
        if !is_table {
            return Ok(object);
        }
        self.columns(definitions, offset)?;
        let mut row = None;
        elements(rows, offset, |value| {
            row.get_or_insert(value);
        })?;
        self.object(row.ok_or(WireError::NoTable { missing: "rows", offset })?, offset)
    }
}
