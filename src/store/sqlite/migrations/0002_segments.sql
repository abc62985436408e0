-- The calls of a chunk stand in a file of their own (`segments.rs`) from now on, each written once; where `segment` is not given they are in `records`
-- as before. `checksum` is the CRC-32 of what stands there.
ALTER TABLE chunks ADD COLUMN segment INTEGER;
ALTER TABLE chunks ADD COLUMN offset INTEGER;
ALTER TABLE chunks ADD COLUMN checksum INTEGER;
-- `shelf` keeps apart the files of two stores that stood in one place after each other; those before `first_segment` are gone.
ALTER TABLE marks ADD COLUMN shelf TEXT NOT NULL DEFAULT '';
ALTER TABLE marks ADD COLUMN first_segment INTEGER NOT NULL DEFAULT 1;
UPDATE marks SET shelf = lower(hex(randomblob(4)));
