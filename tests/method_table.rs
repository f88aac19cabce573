//! The table "what each method costs" of the crate's documentation names every public method,
//! and no other; so does the one of `docs/embedded.md`, "from interrupts". By plain text: the
//! sources are laid out by rustfmt.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

const TYPES: [&str; 14] = [
    "Window",
    "Assignment",
    "At",
    "Lease",
    "SharedLease",
    "Detached",
    "Snapshot",
    "BatchWatermark",
    "BoxedBatchWatermark",
    "Batches",
    "Budget",
    "Share",
    "Budgeted",
    "Permit",
];

type Methods = BTreeSet<(String, String)>;

/// The type that a line opens an inherent impl, or the trait, of.
fn opened(line: &str) -> Option<&'static str> {
    if line.starts_with("pub trait Window:") {
        return Some("Window");
    }
    let rest = line.strip_prefix("impl")?;
    if line.contains(" for ") {
        return None;
    }
    // Behind the parameters of the impl itself.
    let mut depth = 0;
    let rest = rest.trim_start_matches(|letter| {
        depth += i32::from(letter == '<') - i32::from(letter == '>');
        depth > 0 || letter == '>'
    });
    let name = rest.trim_start().split(['<', ' ']).next()?;
    TYPES.into_iter().find(|known| *known == name)
}

fn method(line: &str, of_trait: bool) -> Option<&str> {
    let rest = line.strip_prefix("    ").filter(|rest| !rest.starts_with(' '))?;
    let rest = if of_trait { rest } else { rest.strip_prefix("pub ")? };
    let rest = ["const ", "async ", "unsafe "]
        .iter()
        .fold(rest, |rest, word| rest.strip_prefix(word).unwrap_or(rest));
    rest.strip_prefix("fn ")?.split(['(', '<']).next()
}

fn collect(file: &Path, methods: &mut Methods) {
    let source = fs::read_to_string(file).unwrap();
    let mut inside = None;
    let mut hidden = false;
    for line in source.lines() {
        match inside {
            None => inside = opened(line),
            Some(_) if line == "}" => inside = None,
            Some(name) => {
                if let Some(method) = method(line, name == "Window").filter(|_| !hidden) {
                    methods.insert((name.into(), method.into()));
                }
            }
        }
        hidden = line.trim() == "#[doc(hidden)]";
    }
}

fn sources(folder: &Path, methods: &mut Methods) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, methods);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            collect(&path, methods);
        }
    }
}

/// The methods that the tables of a file name: headings begin with `heading`, lines with `lead`,
/// and a row has so many cells.
fn table(file: &Path, lead: &str, heading: &str, count: usize) -> Methods {
    let mut methods = Methods::new();
    let mut of = None;
    for line in fs::read_to_string(file).unwrap().lines() {
        let Some(line) = line.strip_prefix(lead) else { continue };
        if let Some(name) = line.strip_prefix(heading) {
            of = TYPES.into_iter().find(|known| *known == name);
        }
        let (Some(of), Some(row)) = (of, line.strip_prefix("| `")) else { continue };
        let cells: Vec<&str> = row.trim_end_matches(" |").split(" | ").collect();
        assert_eq!(cells.len(), count, "cells of {line}");
        for name in cells[0].trim_end_matches('`').split("`, `") {
            assert!(methods.insert((of.into(), name.into())), "{of}::{name} is there twice");
        }
    }
    methods
}

fn assert_names_all(table: Methods) {
    let mut written = Methods::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), &mut written);
    for of in TYPES {
        assert!(written.iter().any(|(name, _)| name == of), "no method of {of} was found");
    }
    let missing: Vec<_> = written.difference(&table).collect();
    let gone: Vec<_> = table.difference(&written).collect();
    assert!(missing.is_empty(), "not in the table: {missing:?}");
    assert!(gone.is_empty(), "in the table, not in the sources: {gone:?}");
}

#[test]
fn the_table_of_costs_names_every_public_method() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/lib.rs");
    assert_names_all(table(&file, "//! ", "## ", 5));
}

#[test]
fn the_table_of_interrupts_names_every_public_method() {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/embedded.md");
    assert_names_all(table(&file, "", "### ", 3));
}
