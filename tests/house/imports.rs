//! The imports between the files of a crate: every `use` and every path, except in tests.

use std::collections::BTreeMap;
use std::path::Path;

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

/// The file `from` refers to an item in the file `to`; both are relative to `src`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Import {
    pub from: String,
    pub to: String,
    /// The path as written.
    pub path: String,
}

/// A module path from the crate root.
type Module = Vec<String>;

/// Returns all imports of the crate in `src`, sorted, except those of test modules.
pub fn imports(src: &Path) -> Vec<Import> {
    let mut files = BTreeMap::new();
    collect(src, src, &mut files);
    // Modules that their parent declares for tests.
    let mut tests = Vec::new();
    let mut parsed = BTreeMap::new();
    for (module, file) in &files {
        let text = std::fs::read_to_string(src.join(file)).unwrap();
        let tree = syn::parse_file(&text).unwrap_or_else(|error| panic!("src/{file}: {error}"));
        for item in &tree.items {
            if let syn::Item::Mod(inner) = item
                && is_for_tests(&inner.attrs)
            {
                tests.push([module.clone(), vec![inner.ident.to_string()]].concat());
            }
        }
        parsed.insert(module.clone(), tree);
    }
    let mut found = Vec::new();
    for (module, tree) in &parsed {
        if tests.iter().any(|test| module.starts_with(test)) {
            continue;
        }
        let mut reader =
            Reader { files: &files, file: module, inner: module.clone(), found: &mut found };
        reader.visit_file(tree);
    }
    found.retain(|import| {
        !tests.iter().any(|test| files.get(test).is_some_and(|file| *file == import.to))
    });
    found.sort();
    found.dedup_by(|a, b| (&a.from, &a.to) == (&b.from, &b.to));
    found
}

/// Returns the files below `src` that no module declares and that are thus not compiled, each with the file that
/// could declare it.
pub fn undeclared(src: &Path) -> Vec<(String, String)> {
    let mut files = BTreeMap::new();
    collect(src, src, &mut files);
    let declared = |file: &str, name: &str| {
        let text = std::fs::read_to_string(src.join(file)).unwrap();
        let tree = syn::parse_file(&text).unwrap_or_else(|error| panic!("src/{file}: {error}"));
        tree.items.iter().any(|item| {
            matches!(item, syn::Item::Mod(inner) if inner.content.is_none() && inner.ident == name)
        })
    };
    let mut found = Vec::new();
    for (module, file) in &files {
        let Some((name, parent)) = module.split_last() else { continue };
        let parent = files.get(parent).unwrap_or_else(|| panic!("src/{file} is in no module"));
        if !declared(parent, name) {
            found.push((file.clone(), parent.clone()));
        }
    }
    found
}

fn collect(src: &Path, folder: &Path, files: &mut BTreeMap<Module, String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(src, &path, files);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            let file = path.strip_prefix(src).unwrap().to_string_lossy().into_owned();
            let mut module: Module =
                file.trim_end_matches(".rs").split('/').map(str::to_owned).collect();
            if matches!(module.last().unwrap().as_str(), "mod" | "lib") {
                module.pop();
            }
            if file != "main.rs" {
                files.insert(module, file);
            }
        }
    }
}

/// Includes items for fuzz targets only.
fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    let is_of_tests = |condition: String| {
        matches!(&*condition.replace(' ', ""), "test" | "fuzzing" | "any(test,fuzzing)")
    };
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && matches!(&attribute.meta, syn::Meta::List(list) if is_of_tests(list.tokens.to_string()))
    })
}

struct Reader<'a> {
    files: &'a BTreeMap<Module, String>,
    /// The module of the file.
    file: &'a Module,
    /// The module within the file.
    inner: Module,
    found: &'a mut Vec<Import>,
}

impl Reader<'_> {
    /// Records the file of a path that refers to this crate.
    fn note(&mut self, path: &[String]) {
        let Some((mut at, rest)) = self.begin(path) else { return };
        for name in rest {
            at.push(name.clone());
            if !self.files.contains_key(&at) {
                at.pop();
                break;
            }
        }
        let (Some(from), Some(to)) = (self.files.get(self.file), self.files.get(&at)) else {
            return;
        };
        if from != to {
            let import = Import { from: from.clone(), to: to.clone(), path: path.join("::") };
            self.found.push(import);
        }
    }

    /// Returns the module at the start of a path, and the rest of the path.
    fn begin<'p>(&self, path: &'p [String]) -> Option<(Module, &'p [String])> {
        match path.first()?.as_str() {
            "crate" => Some((Module::new(), &path[1..])),
            "self" => Some((self.file_module(&self.inner), &path[1..])),
            "super" => {
                let ups = path.iter().take_while(|name| *name == "super").count();
                let base = self.inner.len().checked_sub(ups)?;
                Some((self.file_module(&self.inner[..base]), &path[ups..]))
            }
            first => {
                let child = [self.inner.clone(), vec![first.to_owned()]].concat();
                self.files.contains_key(&child).then(|| (self.inner.clone(), path))
            }
        }
    }

    /// Returns the module whose file contains a module; inline modules belong to their file.
    fn file_module(&self, module: &[String]) -> Module {
        if module.len() >= self.file.len() { self.file.clone() } else { module.to_vec() }
    }

    fn note_use(&mut self, prefix: &mut Vec<String>, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => {
                prefix.push(path.ident.to_string());
                self.note_use(prefix, &path.tree);
                prefix.pop();
            }
            syn::UseTree::Group(group) => {
                for tree in &group.items {
                    self.note_use(prefix, tree);
                }
            }
            syn::UseTree::Glob(_) => self.note(prefix),
            syn::UseTree::Name(syn::UseName { ident })
            | syn::UseTree::Rename(syn::UseRename { ident, .. }) => {
                let mut path = prefix.clone();
                if ident != "self" {
                    path.push(ident.to_string());
                }
                self.note(&path);
            }
        }
    }

    /// Records paths in macro arguments: names joined by `::`.
    fn note_tokens(&mut self, tokens: TokenStream) {
        let mut path: Vec<String> = Vec::new();
        let mut colons = 0;
        for token in tokens {
            match token {
                TokenTree::Ident(name) => {
                    if colons != 2 {
                        self.note_if_path(&path);
                        path.clear();
                    }
                    path.push(name.to_string());
                    colons = 0;
                }
                TokenTree::Punct(mark) if mark.as_char() == ':' => colons += 1,
                other => {
                    self.note_if_path(&path);
                    path.clear();
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.note_tokens(group.stream());
                    }
                }
            }
        }
        self.note_if_path(&path);
    }

    fn note_if_path(&mut self, path: &[String]) {
        if path.len() > 1 {
            self.note(path);
        }
    }
}

impl<'ast> Visit<'ast> for Reader<'_> {
    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        if is_for_tests(&module.attrs) {
            return;
        }
        self.inner.push(module.ident.to_string());
        visit::visit_item_mod(self, module);
        self.inner.pop();
    }

    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_item_fn(self, function);
        }
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        if !is_for_tests(&function.attrs) {
            visit::visit_impl_item_fn(self, function);
        }
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if !is_for_tests(&item.attrs) {
            self.note_use(&mut Vec::new(), &item.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let names: Vec<String> = path.segments.iter().map(|part| part.ident.to_string()).collect();
        self.note_if_path(&names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, call: &'ast syn::Macro) {
        self.note_tokens(call.tokens.clone());
        visit::visit_macro(self, call);
    }

    // `pub(in crate::x)` and `pub(super)` are not imports.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}
}
