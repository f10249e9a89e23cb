//! Converts responses in the `Table` format, which carries metadata and printed columns instead of complete objects
//! (<https://kubernetes.io/docs/reference/using-api/api-concepts/#receiving-resources-as-tables>).
//!
//! A row has the object's metadata and the cells that kubectl prints. It is converted back to an object with the
//! metadata and one cell as the member that the cell shows. Tables are always JSON.

use super::members::{for_each_element, for_each_member};
use super::message::WireError;
use crate::resources::Column;
use crate::wire::view::{ObjectBytes, Str, decode, view};

view! {
    /// The definition of a column.
    pub struct ColumnDefinition<'a> {
        name: Str<'a> = 1 "name",
    }
}

/// Converts table rows to objects.
#[derive(Debug)]
pub(super) struct TableConverter {
    column: Column,
    /// The index of the cell in a row, once the column definitions are known.
    cell: Option<usize>,
    object: Vec<u8>,
}

impl TableConverter {
    pub(super) fn new(column: Column) -> Self {
        Self { column, cell: None, object: Vec::new() }
    }

    /// Reads the column definitions. A watch has them in its first event only; `null` keeps the previous ones.
    ///
    /// # Errors
    /// Returns an error if the column is missing or the definitions are malformed.
    pub(super) fn set_columns(&mut self, definitions: &[u8], offset: u64) -> Result<(), WireError> {
        if definitions == b"null" {
            return Ok(());
        }
        let (mut number, mut found) = (0, None);
        for_each_element(definitions, offset, |definition| {
            let decoded = decode::<ColumnDefinition<'_>>(ObjectBytes::Json(definition));
            if decoded.is_ok_and(|definition| *definition.name == *self.column.heading) {
                found.get_or_insert(number);
            }
            number += 1;
        })?;
        self.cell = found;
        found.map(|_| ()).ok_or(WireError::IncompleteTable { missing: self.column.heading, offset })
    }

    /// Converts a row to an object.
    ///
    /// # Errors
    /// Returns an error if the row is malformed or lacks the object or the cell.
    pub(super) fn convert_row(&mut self, row: &[u8], offset: u64) -> Result<&[u8], WireError> {
        let (mut cells, mut object): (&[u8], &[u8]) = (b"[]", b"");
        for_each_member(row, offset, |name, value| match name {
            b"\"cells\"" => cells = value,
            b"\"object\"" => object = value,
            _ => {}
        })?;
        let missing = |missing| WireError::IncompleteTable { missing, offset };
        let wanted = self.cell.ok_or(missing("columnDefinitions"))?;
        let (mut number, mut cell): (usize, Option<&[u8]>) = (0, None);
        for_each_element(cells, offset, |value| {
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

    /// Converts the table in an event to an object. Servers without support for tables send objects, which are returned
    /// unchanged.
    ///
    /// # Errors
    /// Returns an error if the table is malformed or has no row.
    pub(super) fn convert_event<'a>(
        &'a mut self,
        object: &'a [u8],
        offset: u64,
    ) -> Result<&'a [u8], WireError> {
        let (mut is_table, mut definitions, mut rows): (bool, &[u8], &[u8]) =
            (false, b"null", b"[]");
        for_each_member(object, offset, |name, value| match name {
            b"\"kind\"" => is_table = value == b"\"Table\"",
            b"\"columnDefinitions\"" => definitions = value,
            b"\"rows\"" => rows = value,
            _ => {}
        })?;
        if !is_table {
            return Ok(object);
        }
        self.set_columns(definitions, offset)?;
        let mut row = None;
        for_each_element(rows, offset, |value| {
            row.get_or_insert(value);
        })?;
        self.convert_row(row.ok_or(WireError::IncompleteTable { missing: "rows", offset })?, offset)
    }
}
