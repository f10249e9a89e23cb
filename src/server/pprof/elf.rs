//! Reads function names from the symbol table of an ELF file.
//!
//! It reads only what is needed: the table passes through a small buffer, and names are read for
//! matching symbols only. Debug information is ignored, so it cannot provide source lines or
//! inlined functions.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// The number of bytes of the symbol table read at a time; a multiple of [`SYMBOL`].
const CHUNK: usize = 2_048 * SYMBOL;

/// Sizes of the 64-bit records.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const SECTION: usize = 64;
const SYMBOL: usize = 24;

/// The maximum number of segments, sections or note bytes accepted in a file.
const MANY: usize = 4_096;

/// The maximum length of a name; those of generic Rust functions have a few hundred bytes.
const LONGEST_NAME: usize = 16 << 10;

/// `p_type`, `sh_type` and the types of function symbols.
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const SHT_SYMTAB: u32 = 2;
const SHT_DYNSYM: u32 = 11;
const STT_FUNC: u8 = 2;
const STT_GNU_IFUNC: u8 = 10;
const NT_GNU_BUILD_ID: u32 = 3;

/// An ELF file for this machine.
#[derive(Debug)]
pub(super) struct Elf {
    file: File,
    segments: Vec<Segment>,
    symbols: Option<Table>,
}

#[derive(Clone, Copy, Debug)]
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

#[derive(Clone, Copy, Debug)]
struct Table {
    offset: u64,
    size: u64,
    names: u64,
    names_size: u64,
}

/// Returns the field at offset `at` of a record, zero-padded if the record is too short.
fn field<const N: usize>(record: &[u8], at: usize) -> [u8; N] {
    let bytes = record.get(at..at + N).and_then(|bytes| bytes.try_into().ok());
    bytes.unwrap_or([0; N])
}

fn u16_at(record: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(field(record, at))
}

fn u32_at(record: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(field(record, at))
}

fn u64_at(record: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(field(record, at))
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

impl Elf {
    /// Reads the headers.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or is not a 64-bit ELF file in this machine's byte order.
    pub(super) fn open(file: File) -> io::Result<Self> {
        let order = if cfg!(target_endian = "little") { 1 } else { 2 };
        let mut header = [0; HEADER];
        file.read_exact_at(&mut header, 0)?;
        if header[..6] != [0x7f, b'E', b'L', b'F', 2, order] {
            return Err(wrong("not an ELF file for this architecture"));
        }
        // Offset of a table, number of its records, and their size.
        let table = |offset, count, each| {
            (u64_at(&header, offset), u16_at(&header, count), u16_at(&header, each))
        };
        let segments = Self::records(&file, table(32, 56, 54), SEGMENT)?;
        let segments = segments.chunks_exact(SEGMENT).map(|record| Segment {
            kind: u32_at(record, 0),
            offset: u64_at(record, 8),
            address: u64_at(record, 16),
            size: u64_at(record, 32),
        });
        let segments = segments.collect();
        let sections = Self::records(&file, table(40, 60, 58), SECTION)?;
        let of_kind = |kind: u32| {
            let mut records = sections.chunks_exact(SECTION);
            let record = records.find(|record| u32_at(record, 4) == kind)?;
            let names = sections.chunks_exact(SECTION).nth(u32_at(record, 40) as usize)?;
            (u64_at(record, 56) == SYMBOL as u64).then(|| Table {
                offset: u64_at(record, 24),
                size: u64_at(record, 32),
                names: u64_at(names, 24),
                names_size: u64_at(names, 32),
            })
        };
        // A stripped shared library still has its dynamic symbols.
        let symbols = of_kind(SHT_SYMTAB).or_else(|| of_kind(SHT_DYNSYM));
        Ok(Self { file, segments, symbols })
    }

    /// Reads a table of records with this offset, count and record size.
    fn records(file: &File, table: (u64, u16, u16), size: usize) -> io::Result<Vec<u8>> {
        let (offset, count, each) = table;
        if count == 0 {
            return Ok(Vec::new());
        }
        if usize::from(each) != size || usize::from(count) > MANY {
            return Err(wrong("headers of an unknown size"));
        }
        let mut records = vec![0; usize::from(count) * size];
        file.read_exact_at(&mut records, offset)?;
        Ok(records)
    }

    /// Converts a file offset to a virtual address.
    pub(super) fn address(&self, offset: u64) -> Option<u64> {
        let holds = |segment: &&Segment| {
            segment.kind == PT_LOAD
                && offset >= segment.offset
                && offset - segment.offset < segment.size
        };
        let segment = self.segments.iter().find(holds)?;
        Some(segment.address.wrapping_add(offset - segment.offset))
    }

    /// Returns the linker's build ID in hexadecimal.
    pub(super) fn build_id(&self) -> Option<String> {
        self.segments.iter().filter(|segment| segment.kind == PT_NOTE).find_map(|segment| {
            let size = usize::try_from(segment.size).ok()?.min(MANY);
            let mut notes = vec![0; size];
            self.file.read_exact_at(&mut notes, segment.offset).ok()?;
            gnu_build_id(&notes)
        })
    }

    /// Returns the symbol names for file addresses, which must be in ascending order.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub(super) fn names(&self, addresses: &[u64]) -> io::Result<Vec<Option<String>>> {
        let Some(table) = self.symbols else {
            return Ok(vec![None; addresses.len()]);
        };
        // Size of the symbol and offset of its name.
        let mut hits: Vec<Option<(u64, u32)>> = vec![None; addresses.len()];
        let mut buffer = vec![0; CHUNK];
        let mut read = 0;
        while read < table.size {
            let take = usize::try_from(table.size - read).map_or(CHUNK, |left| left.min(CHUNK));
            self.file.read_exact_at(&mut buffer[..take], table.offset + read)?;
            for symbol in buffer[..take].chunks_exact(SYMBOL) {
                let kind = symbol[4] & 0xf;
                let (start, size) = (u64_at(symbol, 8), u64_at(symbol, 16));
                if !matches!(kind, STT_FUNC | STT_GNU_IFUNC) || u16_at(symbol, 6) == 0 || size == 0
                {
                    continue;
                }
                let from = addresses.partition_point(|address| *address < start);
                let inside = addresses[from..].iter().zip(&mut hits[from..]);
                for (_, hit) in inside.take_while(|(address, _)| **address - start < size) {
                    // The smallest enclosing symbol is the most specific.
                    if hit.is_none_or(|(known, _)| size < known) {
                        *hit = Some((size, u32_at(symbol, 0)));
                    }
                }
            }
            read += take as u64;
        }
        let name = |hit: Option<(u64, u32)>| hit.and_then(|(_, at)| self.name(&table, at.into()));
        Ok(hits.into_iter().map(name).collect())
    }

    fn name(&self, table: &Table, at: u64) -> Option<String> {
        let left = usize::try_from(table.names_size.checked_sub(at)?).ok()?;
        let mut name = Vec::new();
        while name.len() < left.min(LONGEST_NAME) {
            let known = name.len();
            name.resize((known + 256).min(left), 0);
            self.file.read_exact_at(&mut name[known..], table.names + at + known as u64).ok()?;
            if let Some(end) = memchr::memchr(0, &name[known..]) {
                name.truncate(known + end);
                return String::from_utf8(name).ok().filter(|name| !name.is_empty());
            }
        }
        None
    }
}

/// Finds the build ID in a note segment.
fn gnu_build_id(mut notes: &[u8]) -> Option<String> {
    let aligned = |size: u32| (size as usize).checked_next_multiple_of(4);
    while notes.len() >= 12 {
        let (name_size, size, kind) = (u32_at(notes, 0), u32_at(notes, 4), u32_at(notes, 8));
        let name = notes.get(12..)?.get(..name_size as usize)?;
        let start = 12_usize.checked_add(aligned(name_size)?)?;
        let rest = notes.get(start..)?;
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" {
            let id = rest.get(..size as usize)?;
            return Some(id.iter().map(|byte| format!("{byte:02x}")).collect());
        }
        notes = rest.get(aligned(size)?..)?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn this_program() -> Elf {
        Elf::open(File::open("/proc/self/exe").expect("program")).expect("ELF")
    }

    #[test]
    fn other_files_are_rejected() {
        for file in ["/proc/self/cmdline", concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")] {
            assert!(Elf::open(File::open(file).expect("file")).is_err(), "{file}");
        }
    }

    #[test]
    fn addresses_outside_functions_have_no_name() {
        let elf = this_program();
        assert_eq!(elf.names(&[0, u64::MAX]).expect("names"), [None, None]);
        assert_eq!(elf.address(u64::MAX), None);
        assert!(elf.address(0).is_some(), "the header is loaded with the program");
    }

    #[test]
    fn truncated_notes_have_no_build_id() {
        let mut notes = Vec::new();
        for number in [4_u32, 2, 1] {
            notes.extend(number.to_ne_bytes());
        }
        notes.extend(b"GNU\0\x01\x02\0\0");
        for number in [4_u32, 3, NT_GNU_BUILD_ID] {
            notes.extend(number.to_ne_bytes());
        }
        notes.extend(b"GNU\0\xab\x01\xff\0");
        assert_eq!(gnu_build_id(&notes).as_deref(), Some("ab01ff"));
        for end in 0..notes.len() - 1 {
            assert_eq!(gnu_build_id(&notes[..end]), None, "cut at {end}");
        }
        assert_eq!(gnu_build_id(&[0xff; 64]), None);
    }
}
