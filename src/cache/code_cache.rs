//! Builds the Huffman codes of resources, and keeps them between scrapes.

use std::sync::Arc;

use super::resource::Resource;
use crate::deflate::{CodeBuilder, CodeSet};

/// Maximum text of a resource that is left to a general-purpose compressor, in bytes.
const SHORT: usize = 256 * 1024;
/// Maximum number of pages and amount of text of a small resource, which is left to a general-purpose compressor, too:
/// its families fit into the deflate window, so text of an object is found in the previous family.
const FEW: usize = 5;
const FEW_OBJECTS_TEXT: usize = 3 * 1024 * 1024;

/// Returns the number of pages of a resource.
fn pages(resource: &Resource) -> usize {
    resource.stores.iter().map(|store| store.pages.len()).sum()
}

/// Starts building the codes of a resource.
pub(super) fn code_builder(resource: &Resource) -> CodeBuilder {
    let names = resource.schema.families.iter().map(|family| family.name.clone()).collect();
    let pages = pages(resource);
    let all = resource.stores.iter().flat_map(|store| store.pages.iter());
    CodeBuilder::new(
        names,
        pages,
        all.step_by(CodeBuilder::sampling_step(pages)).map(|page| page.sample()),
    )
}

/// Returns the text length of the selected families in bytes, if it is too short for codes of their own.
pub(super) fn little_text(resource: &Resource, wanted: impl Fn(&str) -> bool) -> Option<usize> {
    let small = match pages(resource) {
        #[cfg(any(test, fuzzing))]
        _ if super::tests::ANY_TEXT_HAS_CODES.get() => 1,
        ..=FEW => FEW_OBJECTS_TEXT,
        _ => SHORT,
    };
    let mut text = 0;
    for (at, family) in resource.schema.families.iter().enumerate() {
        if !wanted(&family.name) {
            continue;
        }
        for page in resource.stores.iter().flat_map(|store| store.pages.iter()) {
            text += page.family_size(&family.name, at).bytes as usize;
            if text >= small {
                return None;
            }
        }
    }
    Some(text)
}

/// Returns the codes of a resource, if it has any that are still good.
pub(super) fn known_codes(resource: &Resource) -> Option<Arc<CodeSet>> {
    resource.codes.load_full().filter(|codes| codes.fits(pages(resource)))
}

/// Stores new codes of a resource.
pub(super) fn store_codes(resource: &Resource, codes: CodeSet) -> Arc<CodeSet> {
    let codes = Arc::new(codes);
    resource.codes.store(Some(Arc::clone(&codes)));
    codes
}
