//! Creating and changing objects.

use super::{
    Registry, Submission, Writer, Written,
    accept::{Refusal, accept},
    create::{self, Birth},
    errors::from_storage,
    names::generated,
    patch::Patch,
    update::{self, Fate},
};
use crate::{
    ApiError, Object,
    admission::{Operation, Review},
    storage::{Key, Revision, StorageError},
};

/// How often a generated name may be taken already.
const NAMES: usize = 8;
/// How often a change is tried again because another writer was faster.
const RETRIES: usize = 32;

impl Registry {
    /// Stores a new object in a namespace (none for cluster-scoped ones). Its name is its own, or
    /// generated from `generateName`.
    ///
    /// # Errors
    /// 400 for a body that cannot be this kind, 409 if the name is taken, 422 if it is not valid,
    /// what admission says, or trouble of the storage.
    pub async fn create(
        &self,
        writer: &Writer,
        namespace: Option<&str>,
        submission: impl Into<Submission> + Send,
    ) -> Result<Written, ApiError> {
        let strategy = self.strategy();
        let (object, warnings) = accept(strategy, submission.into(), writer.field_validation)
            .map_err(|refusal| refusal.of_body(strategy))?;
        let base = match object.pointer("/metadata/generateName") {
            Some(base) if object.name().is_empty() => base.as_str().unwrap_or_default(),
            _ => "",
        };
        if base.is_empty() {
            let key = self.key(namespace, object.name());
            return self.create_as(writer, key, object.clone(), warnings).await;
        }
        for _ in 1..NAMES {
            let name = generated(base, &self.environment().suffix());
            let key = self.key(namespace, &name);
            let created = self.create_as(writer, key, object.clone(), warnings.clone());
            match created.await {
                Err(error) if error.reason == crate::Reason::AlreadyExists => {}
                other => return other,
            }
        }
        let key = self.key(namespace, &generated(base, &self.environment().suffix()));
        self.create_as(writer, key, object.clone(), warnings)
            .await
            .map_err(no_unique_name)
    }

    fn key(&self, namespace: Option<&str>, name: &str) -> Key {
        Key {
            namespace: namespace.map(str::to_owned),
            name: name.to_owned(),
        }
    }

    async fn create_as(
        &self,
        writer: &Writer,
        key: Key,
        mut object: Object,
        mut warnings: Vec<String>,
    ) -> Result<Written, ApiError> {
        let birth = Birth {
            key: key.clone(),
            uid: self.environment().uid(),
            now: self.environment().now(),
        };
        warnings.extend(create::prepare(self.strategy(), &mut object, &birth));
        let review = self.review(Operation::Create, writer, &key, None, None);
        warnings.extend(self.admit(review, &mut object).await?);
        create::validate(self.strategy(), &object)?;
        if writer.dry_run {
            self.check_free(&key).await?;
            return Ok(Written { object, warnings });
        }
        let context = writer.context();
        match self.parts.storage.create(&context, &key, &object).await {
            Ok(stored) => Ok(Written {
                object: stored.object,
                warnings,
            }),
            Err(StorageError::AlreadyExists) => Err(self.taken(&key).await),
            Err(error) => Err(from_storage(self.resource(), &key.name, error)),
        }
    }

    async fn check_free(&self, key: &Key) -> Result<(), ApiError> {
        match self.parts.storage.get(key).await {
            Err(StorageError::NotFound) => Ok(()),
            Err(error) => Err(from_storage(self.resource(), &key.name, error)),
            Ok(_) => Err(self.taken(key).await),
        }
    }

    async fn taken(&self, key: &Key) -> ApiError {
        let row = self.resource();
        let mut error = ApiError::already_exists(row.group, row.plural, &key.name);
        let deleting = match self.parts.storage.get(key).await {
            Ok(stored) => stored.object.deletion_timestamp().is_some(),
            Err(_) => false,
        };
        if deleting {
            error.message = format!("object is being deleted: {}", error.message);
        }
        error
    }

    /// Replaces an object, or one of its subresources. A `resourceVersion` in the submission must
    /// be the current one; without it the last writer wins.
    ///
    /// # Errors
    /// As [`Registry::create`]; 404 if there is no such object.
    pub async fn update(
        &self,
        writer: &Writer,
        key: &Key,
        subresource: Option<&str>,
        submission: impl Into<Submission> + Send,
    ) -> Result<Written, ApiError> {
        let strategy = self.strategy();
        let (object, warnings) = accept(strategy, submission.into(), writer.field_validation)
            .map_err(|refusal| refusal.of_body(strategy))?;
        self.change(writer, key, subresource, |_| {
            Ok((object.clone(), warnings.clone()))
        })
        .await
    }

    /// Replaces the status of an object.
    ///
    /// # Errors
    /// As [`Registry::update`].
    pub async fn update_status(
        &self,
        writer: &Writer,
        key: &Key,
        object: Object,
    ) -> Result<Written, ApiError> {
        self.update(writer, key, Some("status"), object).await
    }

    /// Patches an object; tried again when another writer was faster, unless the patch itself
    /// names a `resourceVersion`.
    ///
    /// # Errors
    /// As [`Registry::update`]; 422 for a patch that does not apply.
    pub async fn patch(
        &self,
        writer: &Writer,
        key: &Key,
        subresource: Option<&str>,
        patch: &Patch,
    ) -> Result<Written, ApiError> {
        self.change(writer, key, subresource, |current| {
            let patched = patch.apply(current)?;
            let document = patched.object.clone();
            accept(self.strategy(), patched, writer.field_validation)
                .map_err(|refusal: Refusal| refusal.of_patch(&document))
        })
        .await
    }

    /// Reads, changes and writes an object, again and again until no other writer was faster.
    /// `change` may be called several times.
    ///
    /// # Errors
    /// As [`Registry::update`], or what `change` gives.
    pub async fn update_with(
        &self,
        writer: &Writer,
        key: &Key,
        subresource: Option<&str>,
        mut change: impl FnMut(&mut Object) -> Result<(), ApiError> + Send,
    ) -> Result<Written, ApiError> {
        self.change(writer, key, subresource, |current| {
            let mut object = current.clone();
            change(&mut object)?;
            let strategy = self.strategy();
            accept(strategy, object.into(), writer.field_validation)
                .map_err(|refusal| refusal.of_body(strategy))
        })
        .await
    }

    /// Begins with the object as the cache knows it, and looks into the storage once that turns out
    /// not to be enough: what is written is guarded by the revision in any case, and whatever else
    /// is answered (a refusal, that nothing changes, a trial) must be true of the stored object.
    async fn change(
        &self,
        writer: &Writer,
        key: &Key,
        subresource: Option<&str>,
        mut propose: impl FnMut(&Object) -> Result<(Object, Vec<String>), ApiError> + Send,
    ) -> Result<Written, ApiError> {
        let fail = |error| from_storage(self.resource(), &key.name, error);
        let mut known = self.cache().get(key);
        for _ in 0..RETRIES {
            let cached = known.take();
            let is_current = cached.is_none();
            let (old, revision) = match cached {
                Some(item) => (item.object.clone(), item.revision),
                None => {
                    let stored = self.parts.storage.get(key).await.map_err(fail)?;
                    (stored.object, stored.revision)
                }
            };
            let proposed = propose(&old);
            let decided = match proposed {
                Ok((new, warnings)) => {
                    self.decide(writer, key, subresource, &old, new, warnings)
                        .await
                }
                Err(error) => Err(error),
            };
            let (fate, written) = match decided {
                Ok((Fate::Unchanged, _)) | Err(_) if !is_current => continue,
                Ok(_) if writer.dry_run && !is_current => continue,
                decided => decided?,
            };
            if fate == Fate::Unchanged || writer.dry_run {
                return Ok(written);
            }
            let Written { object, warnings } = written;
            match self.store(writer, key, fate, object, revision).await {
                Ok(object) => return Ok(Written { object, warnings }),
                Err(StorageError::Conflict) => {}
                Err(StorageError::NotFound) if !is_current => {}
                Err(error) => return Err(fail(error)),
            }
        }
        let row = self.resource();
        Err(ApiError::conflict(
            row.group,
            row.plural,
            &key.name,
            update::MODIFIED,
        ))
    }

    /// What becomes of one proposal. A caller who named a version that has been overtaken meanwhile is
    /// told so by the next try's identity check.
    async fn decide(
        &self,
        writer: &Writer,
        key: &Key,
        subresource: Option<&str>,
        old: &Object,
        mut new: Object,
        mut warnings: Vec<String>,
    ) -> Result<(Fate, Written), ApiError> {
        let strategy = self.strategy();
        update::check_identity(strategy, &new, old)?;
        warnings.extend(update::prepare(strategy, &mut new, old, subresource));
        let review = self.review(Operation::Update, writer, key, subresource, Some(old));
        warnings.extend(self.admit(review, &mut new).await?);
        update::validate(strategy, &new, old, subresource)?;
        let fate = update::fate(&new, old);
        let written = Written {
            object: new,
            warnings,
        };
        Ok((fate, written))
    }

    async fn store(
        &self,
        writer: &Writer,
        key: &Key,
        fate: Fate,
        new: Object,
        expected: Revision,
    ) -> Result<Object, StorageError> {
        let (storage, context) = (&self.parts.storage, writer.context());
        if fate == Fate::Remove {
            storage.delete(&context, key, expected).await?;
            return Ok(new);
        }
        let stored = storage.update(&context, key, &new, expected).await?;
        Ok(stored.object)
    }

    pub(super) fn review<'a>(
        &'a self,
        operation: Operation,
        writer: &'a Writer,
        key: &'a Key,
        subresource: Option<&'a str>,
        old: Option<&'a Object>,
    ) -> Review<'a> {
        Review {
            operation,
            resource: self.resource(),
            subresource,
            key,
            old,
            writer,
        }
    }

    pub(super) async fn admit(
        &self,
        review: Review<'_>,
        object: &mut Object,
    ) -> Result<Vec<String>, ApiError> {
        let mut warnings = Vec::new();
        for step in &self.parts.admission {
            warnings.extend(step.admit(review, object).await?);
        }
        Ok(warnings)
    }
}

fn no_unique_name(mut error: ApiError) -> ApiError {
    if error.reason == crate::Reason::AlreadyExists {
        error.message += ", the server was not able to generate a unique name for the object";
        return error.retry_after(1);
    }
    error
}
