//! Notices when files change, however they are replaced: written in place, renamed over, or by the
//! symlink swap (`..data`) with which kubelet updates mounted Secrets and ConfigMaps.
//!
//! Entry point: [`FileChanges`]. It watches the directories, not the files, and looks again every
//! minute in case the file system sends no events; whoever asks compares contents.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use notify::{RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;

/// How often to look without having been told.
const POLL: Duration = Duration::from_secs(60);

/// A watch of some files' directories.
pub struct FileChanges {
    changed: Arc<Notify>,
    _watcher: Option<RecommendedWatcher>,
}

impl FileChanges {
    /// Watches the directories of `files`. Where the system refuses, looking once a minute remains.
    pub fn of<P: AsRef<Path>>(files: impl IntoIterator<Item = P>) -> Self {
        let changed = Arc::new(Notify::new());
        let watcher = watch(&directories(files), changed.clone())
            .inspect_err(|error| {
                tracing::warn!(%error, "cannot watch files; they are read once a minute instead");
            })
            .ok();
        Self {
            changed,
            _watcher: watcher,
        }
    }

    /// Waits until something may have changed. Changes between two calls are not lost.
    pub async fn next(&mut self) {
        let _ = tokio::time::timeout(POLL, self.changed.notified()).await;
    }
}

fn directories<P: AsRef<Path>>(files: impl IntoIterator<Item = P>) -> BTreeSet<PathBuf> {
    let parent = |file: P| match file.as_ref().parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    };
    files.into_iter().map(parent).collect()
}

fn watch(dirs: &BTreeSet<PathBuf>, changed: Arc<Notify>) -> notify::Result<RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let only_read = event.is_ok_and(|event| event.kind.is_access());
        if !only_read {
            changed.notify_one();
        }
    })?;
    for dir in dirs {
        watcher.watch(dir, RecursiveMode::NonRecursive)?;
    }
    Ok(watcher)
}
