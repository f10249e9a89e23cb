//! The `kstatd top` command: prints one screen, or refreshes it on a terminal.

use std::io::IsTerminal;
use std::process::ExitCode;

use super::access::{self, run_command};
use super::output::{print, print_error};
use crate::cli::asking::TopArgs;
use crate::tools::CommandError;
use crate::tools::status::ProcessState;
use crate::tools::terminal;
use crate::tools::top::{View, fetch};

/// Rows of a table without a terminal.
const DEFAULT_ROWS: usize = 20;

/// Lines above a table.
const HEADER_LINES: usize = 12;

/// Shows the table. Ends after one screen without a terminal, and on the first error.
pub(crate) fn main(args: TopArgs) -> ExitCode {
    match run_command(top(args)) {
        Ok(state) => ExitCode::from(state.exit_code()),
        Err(error) => {
            print_error(error.to_string().trim_end());
            ExitCode::from(ProcessState::Down.exit_code())
        }
    }
}

async fn top(args: TopArgs) -> Result<ProcessState, CommandError> {
    let TopArgs { metric, sort, output, once, interval, rows, process } = args;
    let json = output.is_json();
    let process = access::process(process).await?;
    let size = || terminal::size().filter(|_| !json && !once && std::io::stdout().is_terminal());
    let view = |size: Option<(usize, usize)>| {
        let fit = size.map_or(DEFAULT_ROWS, |(rows, _)| rows.saturating_sub(HEADER_LINES).max(1));
        View { sort, metric: metric.clone(), rows: rows.unwrap_or(fit) }
    };
    let Some(mut room) = size() else {
        let view = view(None);
        let seen = fetch(&process, &view).await?;
        let text = if json { seen.json() } else { seen.screen(None, &view) };
        print(&text);
        return Ok(seen.state());
    };
    print("\u{1b}[2J");
    let mut before = None;
    loop {
        let view = view(Some(room));
        let seen = fetch(&process, &view).await?;
        print(&terminal::fit_to_screen(&seen.screen(before.as_ref(), &view), room));
        before = Some(seen);
        tokio::time::sleep(interval).await;
        room = size().unwrap_or(room);
    }
}
