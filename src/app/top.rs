//! `kstatd top`: one screen, or one after the other on a terminal.

use std::io::IsTerminal;
use std::process::ExitCode;

use super::access::{access, event_loop, user_agent};
use super::output::{complain, print};
use crate::cli::native::{TopArgs, TopSort};
use crate::tools::ask::Asked;
use crate::tools::status::Doing;
use crate::tools::terminal;
use crate::tools::top::{Sort, View, look};

/// Rows of a table where no terminal says how many fit.
const ROWS: usize = 20;

/// Lines above a table.
const ABOVE: usize = 12;

/// Shows it; ends where there is no terminal, and with the first look that fails.
pub(crate) fn main(args: TopArgs) -> ExitCode {
    match top(args) {
        Ok(doing) => ExitCode::from(doing.exit_code()),
        Err(error) => {
            complain(error.trim_end());
            ExitCode::from(Doing::Down.exit_code())
        }
    }
}

fn top(args: TopArgs) -> Result<Doing, String> {
    let TopArgs { metric, addr, sort, json, once, interval, rows, access: flags } = args;
    let runtime = event_loop()?;
    let process = Asked::new(&addr, access(flags)?, &user_agent())?;
    let sort = match sort {
        TopSort::Series => Sort::Series,
        TopSort::Growth => Sort::Growth,
        TopSort::Bytes => Sort::Bytes,
        TopSort::Lines => Sort::Lines,
    };
    let size = || terminal::size().filter(|_| !json && !once && std::io::stdout().is_terminal());
    let view = |size: Option<(usize, usize)>| {
        let fit = size.map_or(ROWS, |(rows, _)| rows.saturating_sub(ABOVE).max(1));
        View { sort, metric: metric.clone(), rows: rows.unwrap_or(fit) }
    };
    let Some(mut room) = size() else {
        let view = view(None);
        let seen = runtime.block_on(look(&process, &view))?;
        let text = if json { seen.json() } else { seen.screen(None, &view) };
        print(&text);
        return Ok(seen.doing());
    };
    print("\u{1b}[2J");
    let mut before = None;
    loop {
        let view = view(Some(room));
        let seen = runtime.block_on(look(&process, &view))?;
        print(&terminal::drawn(&seen.screen(before.as_ref(), &view), room));
        before = Some(seen);
        runtime.block_on(async { tokio::time::sleep(interval).await });
        room = size().unwrap_or(room);
    }
}
