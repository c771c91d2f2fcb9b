//! Deleting objects, one or many.

use super::{
    ListOptions, Registry, Writer,
    delete::{self, DeleteOptions, Verdict},
    errors::from_storage,
    update::MODIFIED,
};
use crate::{
    ApiError, Object, Reason,
    admission::Operation,
    storage::{Key, StorageError, Stored},
};

/// How often a deletion is tried again because a writer was faster.
const RETRIES: usize = 32;

/// What a deletion led to.
#[derive(Clone, Debug, PartialEq)]
pub enum Removed {
    /// The object is gone; this was its last state.
    Gone(Object),
    /// It waits for its finalizers.
    Waiting(Object),
}

impl Removed {
    /// The object's last known state.
    pub fn into_object(self) -> Object {
        let (Self::Gone(object) | Self::Waiting(object)) = self;
        object
    }
}

impl Registry {
    /// Deletes an object, or marks it for its finalizers.
    ///
    /// # Errors
    /// 404 if there is none, 409 if a precondition fails, what admission says, or trouble of the
    /// storage.
    pub async fn delete(
        &self,
        writer: &Writer,
        key: &Key,
        options: &DeleteOptions,
    ) -> Result<Removed, ApiError> {
        let row = self.resource();
        for _ in 0..RETRIES {
            let old = self.parts.storage.get(key).await;
            let old = old.map_err(|error| from_storage(row, &key.name, error))?;
            delete::check(self.strategy(), &old.object, options)?;
            let review = self.review(Operation::Delete, writer, key, None, Some(&old.object));
            self.admit(review, &mut Object::default()).await?;
            let verdict = delete::decide(&old.object, options, self.environment().now());
            if let Some(removed) = self.carry_out(writer, key, old, verdict).await? {
                return Ok(removed);
            }
        }
        Err(ApiError::conflict(
            row.group, row.plural, &key.name, MODIFIED,
        ))
    }

    /// `None` when a writer was faster.
    async fn carry_out(
        &self,
        writer: &Writer,
        key: &Key,
        old: Stored,
        verdict: Verdict,
    ) -> Result<Option<Removed>, ApiError> {
        let (storage, context) = (&self.parts.storage, writer.context());
        let done = match verdict {
            Verdict::Pending => return Ok(Some(Removed::Waiting(old.object))),
            Verdict::Mark(object) if writer.dry_run => Ok(Removed::Waiting(object)),
            Verdict::Remove if writer.dry_run => Ok(Removed::Gone(old.object)),
            Verdict::Mark(object) => storage
                .update(&context, key, &object, old.revision)
                .await
                .map(|stored| Removed::Waiting(stored.object)),
            Verdict::Remove => storage
                .delete(&context, key, old.revision)
                .await
                .map(|()| Removed::Gone(old.object)),
        };
        match done {
            Ok(removed) => Ok(Some(removed)),
            Err(StorageError::Conflict) => Ok(None),
            Err(error) => Err(from_storage(self.resource(), &key.name, error)),
        }
    }

    /// Deletes everything that a list gives, one by one; returns what was deleted or marked.
    ///
    /// # Errors
    /// The first failure; what was deleted before stays deleted.
    pub async fn delete_collection(
        &self,
        writer: &Writer,
        list: &ListOptions,
        options: &DeleteOptions,
    ) -> Result<Vec<Object>, ApiError> {
        let mut deleted = Vec::new();
        for item in self.list(list).await?.items {
            match self.delete(writer, &item.key, options).await {
                Ok(removed) => deleted.push(removed.into_object()),
                Err(error) if error.reason == Reason::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }
}
