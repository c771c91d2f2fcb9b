//! The kubeworkspaces.io API as data: types, defaults, validation, schema, columns, the resource table and the APIService registration
