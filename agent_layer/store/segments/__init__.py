"""The segment format, blobs and tombstones: what lies in the object store."""
