//! The state folder: whose it is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::Failure;

const INPUTS: &str = "inputs";

/// Where offsets, ledger and embedded log are.
pub struct State {
    pub folder: PathBuf,
    /// Removes the folder when dropped.
    _temporary: Option<tempfile::TempDir>,
}

impl State {
    /// Opens or makes the folder; refuses one of other inputs.
    pub fn open(folder: Option<&Path>, inputs: &str) -> Result<Self, Failure> {
        let Some(folder) = folder else {
            let temporary = tempfile::Builder::new().prefix("inflight-consume-").tempdir()?;
            return Ok(Self { folder: temporary.path().into(), _temporary: Some(temporary) });
        };
        let place = |error: io::Error| format!("{}: {error}", folder.display());
        let known = folder.join(INPUTS);
        match fs::read_to_string(&known) {
            Ok(before) if before == inputs => {}
            Ok(before) => {
                return Err(format!(
                    "the state in {} is of other inputs:\n{before}not of:\n{inputs}take another \
                     folder, or remove it to begin anew",
                    folder.display()
                )
                .into());
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                fs::create_dir_all(folder).map_err(place)?;
                let new = folder.join(format!("{INPUTS}.new"));
                // A run that was killed here leaves just that file.
                for entry in fs::read_dir(folder).map_err(place)? {
                    if entry.map_err(place)?.path() != new {
                        let folder = folder.display();
                        return Err(format!(
                            "{folder} is not empty, and not a state of this program"
                        )
                        .into());
                    }
                }
                fs::write(&new, inputs).map_err(place)?;
                fs::rename(&new, &known).map_err(place)?;
            }
            Err(error) => return Err(place(error).into()),
        }
        Ok(Self { folder: folder.into(), _temporary: None })
    }

    /// The ledger's folder.
    pub fn ledger(&self) -> PathBuf {
        self.folder.join("ledger")
    }
}
