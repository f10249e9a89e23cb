//! Any bytes as an object of any kind, in both encodings: an error, or complete lines that a scrape can print.
//!
//! The first byte selects kind and encoding.
#![no_main]

use std::sync::{Arc, LazyLock};

use kstatd::cache::Rendered;
use kstatd::resources::select::filter::FamilyFilter;
use kstatd::resources::select::selection::Selection;
use kstatd::resources::{ObjectBytes, RenderOptions, Renderer, registry};
use libfuzzer_sys::fuzz_target;

/// Every kind with all its families, labels and annotations.
static RENDERERS: LazyLock<Vec<Arc<dyn Renderer>>> = LazyLock::new(|| {
    let all = Selection::new(&["*".to_owned()]);
    let families = FamilyFilter::new(&[], &[], &[".*".to_owned()]).expect("a valid pattern");
    let options = RenderOptions {
        labels: all.clone(),
        annotations: all,
        families: Arc::new(families),
        keep_duplicates: false,
        ..RenderOptions::default()
    };
    registry().iter().map(|resource| resource.renderer(&options)).collect()
});

fuzz_target!(|data: &[u8]| {
    let Some((&choice, bytes)) = data.split_first() else { return };
    let renderer = &RENDERERS[usize::from(choice >> 1) % RENDERERS.len()];
    let object =
        if choice & 1 == 0 { ObjectBytes::Json(bytes) } else { ObjectBytes::Protobuf(bytes) };
    let mut rendered = Rendered::default();
    if let Err(error) = renderer.render(object, &mut rendered) {
        assert!(!error.to_string().is_empty());
        return;
    }
    let schema = renderer.schema();
    assert_eq!(rendered.ends.len(), schema.families.len());
    assert!(rendered.ends.is_sorted());
    let identity = std::str::from_utf8(&rendered.identity).expect("an identity in UTF-8");
    assert!(!identity.contains('\n'));
    let mut seen = std::collections::HashSet::new();
    for family in 0..schema.families.len() {
        let lines = std::str::from_utf8(rendered.family(family)).expect("lines in UTF-8");
        seen.clear();
        for line in lines.split_inclusive('\n') {
            let (labels, value) = line.rsplit_once(' ').expect("a value");
            let number = value.strip_suffix('\n').expect("a whole line");
            assert!(number.parse::<f64>().is_ok(), "{line:?}");
            assert!(format!("{identity}{labels}").ends_with('}') || labels.is_empty(), "{line:?}");
            assert!(seen.insert(labels.to_owned()), "{line:?} twice");
        }
    }
});
