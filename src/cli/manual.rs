//! Generates manual pages for kstatd and its commands from the clap definitions.

use std::path::Path;

use clap::Command;

use super::completion;
use super::usage_error::UsageError;
use crate::telemetry::VERSION;

/// Returns the page of a command, such as `render kube`, or of kstatd itself without words.
///
/// # Errors
/// When there is no such command.
pub(crate) fn page(words: &[String]) -> Result<String, UsageError> {
    let name = [&["kstatd".to_owned()], words].concat().join("-");
    let found = pages().into_iter().find(|(page, _)| *page == name);
    let (_, text) = found.ok_or_else(|| format!("unknown command {:?}", words.join(" ")))?;
    Ok(text)
}

/// Writes the pages of all commands to a folder, which is created if needed.
///
/// # Errors
/// When a file cannot be written.
pub(crate) fn write(folder: &Path) -> Result<(), UsageError> {
    let failed = |path: &Path, error: std::io::Error| format!("{}: {error}", path.display());
    std::fs::create_dir_all(folder).map_err(|error| failed(folder, error))?;
    for (name, text) in pages() {
        let path = folder.join(format!("{name}.1"));
        std::fs::write(&path, text).map_err(|error| failed(&path, error))?;
    }
    Ok(())
}

/// Returns the name and text of every page.
fn pages() -> Vec<(String, String)> {
    let mut command = completion::command().disable_help_subcommand(true);
    // Assigns the full names, such as kstatd-render-kube.
    command.build();
    let mut pages = Vec::new();
    add(&command, &mut pages);
    pages
}

fn add(command: &Command, pages: &mut Vec<(String, String)>) {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    // clap_mangen lists every flag in the synopsis unless the usage is set.
    let usage = command.clone().render_usage().to_string();
    let synopsis = usage.trim_start_matches("Usage:").trim().to_owned();
    let page = clap_mangen::Man::new(command.clone().override_usage(synopsis))
        .source(format!("kstatd {VERSION}"))
        .manual("kstatd");
    let mut text = Vec::new();
    // Writing to memory cannot fail.
    let _ = page.render(&mut text);
    pages.push((name, String::from_utf8_lossy(&text).into_owned()));
    for inner in command.get_subcommands().filter(|inner| !inner.is_hide_set()) {
        add(inner, pages);
    }
}
