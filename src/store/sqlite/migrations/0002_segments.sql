-- The calls of a chunk stand in a file of their own (`segments.rs`) from now on, each written once; where `segment` is not given they are in `records`
-- as before. `shelf` keeps apart the files of two stores that are put in one place after each other.
ALTER TABLE chunks ADD COLUMN segment INTEGER;
ALTER TABLE chunks ADD COLUMN offset INTEGER;
ALTER TABLE marks ADD COLUMN shelf TEXT NOT NULL DEFAULT '';
UPDATE marks SET shelf = lower(hex(randomblob(4)));
