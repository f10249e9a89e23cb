//! Any custom resource configuration and any object: an error or series, never a panic.
#![no_main]

use std::sync::Arc;

use kstatd::cache::Rendered;
use kstatd::resources::ObjectBytes;
use kstatd::resources::custom::resolve::ResolveOptions;
use kstatd::resources::custom::{Definition, ValueError, ValueErrors, load, resolve};
use libfuzzer_sys::fuzz_target;

struct IgnoreErrors;

impl ValueErrors for IgnoreErrors {
    fn value_error(&self, _: &ValueError<'_>) {}
}

/// Separates the configuration from the object.
const SEPARATOR: &str = "\n=====\n";

fuzz_target!(|data: &[u8]| {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (config, object) =
        text.split_once(SEPARATOR).unwrap_or((text, "{\"spec\":{\"a\":[1,{\"b\":\"2\"}]}}"));
    let loaded = load(config);
    let _ = loaded.config.problems();
    let _ = loaded.config.compile();
    let _ = loaded.config.clone().with_valid_names().compile();
    if loaded.errors().next().is_some() {
        return;
    }
    let served: Vec<Definition> = loaded
        .config
        .entries
        .iter()
        .map(|entry| Definition {
            group: entry.group.clone(),
            version: "v1".to_owned(),
            kind: "K".to_owned(),
            list_kind: String::new(),
            plural: "ks".to_owned(),
            namespaced: true,
        })
        .collect();
    for keep_duplicates in [false, true] {
        let options = ResolveOptions {
            families: Arc::default(),
            keep_duplicates,
            errors: Arc::new(IgnoreErrors),
        };
        let Ok(resolution) = resolve(&loaded.config, &served, &options) else { continue };
        let mut rendered = Rendered::default();
        for resolved in &resolution.resources {
            if resolved.renderer.render(ObjectBytes::Json(object.as_bytes()), &mut rendered).is_ok()
            {
                assert_eq!(rendered.ends.len(), resolved.renderer.schema().families.len());
                assert_eq!(
                    rendered.ends.last().map_or(0, |end| *end as usize),
                    rendered.lines.len()
                );
            }
        }
    }
});
