//! Resolves addresses of this process to function names.
//!
//! `/proc/self/maps` gives the file of an address, and the symbol table of the file gives the
//! function. Everything is read for one profile and dropped with it, so that profiles leave no
//! memory behind.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};

use super::elf::Elf;
use crate::util::memory_map;

/// The suffix that the kernel appends to the path of a deleted or replaced file.
const DELETED: &str = " (deleted)";

/// An executable mapping of the address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mapping {
    /// The first address.
    pub start: u64,
    /// The end address (exclusive).
    pub end: u64,
    /// The offset of the first address in the file.
    pub offset: u64,
    /// The path of the file, or the kernel's name for other mappings (`[vdso]`).
    pub path: String,
    /// The build ID of the file, if it has one.
    pub build_id: Option<String>,
}

impl Mapping {
    /// Returns the last component of the path.
    pub(super) fn short(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}

/// Resolved names and mappings of a set of addresses.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// The program's own mapping first.
    pub mappings: Vec<Mapping>,
    names: HashMap<u64, Name>,
}

/// The name of a function.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Name {
    /// The demangled name, with its module path.
    pub readable: String,
    /// The name in the symbol table.
    pub linked: String,
}

impl Symbols {
    /// Resolves `addresses` of this process. Unknown ones are omitted.
    pub(super) fn of(addresses: &BTreeSet<u64>) -> Self {
        let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let program = fs::read_link("/proc/self/exe").unwrap_or_default();
        let program = program.to_string_lossy();
        let program = program.strip_suffix(DELETED).unwrap_or(&program);
        let mut mappings: Vec<Mapping> = maps.lines().filter_map(mapping).collect();
        mappings.retain(|mapping| addresses.range(mapping.start..mapping.end).next().is_some());
        mappings.sort_by_key(|mapping| mapping.path != program);
        let mut names = HashMap::new();
        for mapping in &mut mappings {
            // The program may have been replaced under its path while it runs.
            let path = if mapping.path == program { "/proc/self/exe" } else { &mapping.path };
            let Ok(elf) = File::open(path).and_then(Elf::open) else { continue };
            let in_file = |address: u64| elf.address(address - mapping.start + mapping.offset);
            let found = addresses.range(mapping.start..mapping.end);
            let mut pairs: Vec<(u64, u64)> =
                found.filter_map(|address| Some((in_file(*address)?, *address))).collect();
            pairs.sort_unstable();
            let wanted: Vec<u64> = pairs.iter().map(|(in_file, _)| *in_file).collect();
            let found = elf.names(&wanted).unwrap_or_default();
            for ((_, address), linked) in pairs.into_iter().zip(found) {
                if let Some(linked) = linked {
                    // Without the hash that distinguishes crate versions.
                    let readable = format!("{:#}", rustc_demangle::demangle(&linked));
                    names.insert(address, Name { readable, linked });
                }
            }
            mapping.build_id = elf.build_id();
        }
        Self { mappings, names }
    }

    /// Returns the function at an address.
    pub(super) fn name(&self, address: u64) -> Option<&Name> {
        self.names.get(&address)
    }

    /// Returns the index of the mapping that contains an address.
    pub(super) fn mapping(&self, address: u64) -> Option<usize> {
        self.mappings.iter().position(|mapping| (mapping.start..mapping.end).contains(&address))
    }
}

/// Parses a line of `/proc/self/maps`, if its mapping is executable and has a name.
fn mapping(line: &str) -> Option<Mapping> {
    let memory_map::Mapping { start, end, permissions, offset, path } = memory_map::mapping(line)?;
    let path = path.strip_suffix(DELETED).unwrap_or(path).to_owned();
    let is_wanted = permissions.contains('x') && !path.is_empty();
    is_wanted.then_some(Mapping { start, end, offset, path, build_id: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_maps() {
        let line = "00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/k statd";
        let found = mapping(line).expect("executable");
        assert_eq!((found.start, found.end, found.offset), (0x40_0000, 0x45_2000, 0x1000));
        assert_eq!((found.path.as_str(), found.short()), ("/usr/bin/k statd", "k statd"));
        let gone = mapping("1000-2000 r-xp 00000000 08:02 7 /bin/kstatd (deleted)").expect("gone");
        assert_eq!(gone.path, "/bin/kstatd");
        assert!(mapping("1000-2000 r--p 00000000 08:02 7 /bin/kstatd").is_none());
        assert!(mapping("1000-2000 r-xp 00000000 00:00 0 ").is_none());
        assert!(mapping("1000-2000 r-xp 00000000 00:00 0").is_none());
        assert!(mapping("").is_none());
    }

    #[test]
    fn functions_of_this_program_have_the_paths_of_their_modules() {
        let function = Symbols::of as *const () as u64;
        let symbols = Symbols::of(&[0, function, function + 1].into());
        let readable = |address| symbols.name(address).map(|name| name.readable.as_str());
        let expected = Some("kstatd::server::pprof::symbols::Symbols::of");
        assert_eq!(readable(function), expected);
        assert_eq!(readable(function + 1), expected);
        assert_eq!(readable(0), None);
        assert_eq!(symbols.mapping(function), Some(0));
        assert_eq!(symbols.mapping(0), None);
        let program = &symbols.mappings[0];
        assert_eq!(std::path::Path::new(&program.path), std::env::current_exe().expect("path"));
    }
}
