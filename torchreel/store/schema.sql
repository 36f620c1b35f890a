-- A new store, as SQLite makes it; `.schema --indent` prints it in sqlite3's shell.
-- Made by `python -m torchreel.store.schema`, from the tables there; a test holds it to them.

CREATE TABLE blobs(digest TEXT NOT NULL,codec TEXT NOT NULL,size BIGINT NOT NULL,data BLOB NOT NULL,pack INTEGER,start BIGINT,PRIMARY KEY(digest))WITHOUT ROWID;
CREATE TABLE configs(id INTEGER NOT NULL,digest TEXT NOT NULL,PRIMARY KEY(id),UNIQUE(digest));
CREATE TABLE packs(id INTEGER NOT NULL,size BIGINT NOT NULL,data BLOB NOT NULL,first INTEGER,dictionary INTEGER,PRIMARY KEY(id));
CREATE TABLE recordings(id INTEGER NOT NULL,run TEXT NOT NULL,kind TEXT NOT NULL,replay_of INTEGER,entry TEXT,pid BIGINT NOT NULL,rank BIGINT,argv TEXT NOT NULL,cwd TEXT NOT NULL,started_ns BIGINT NOT NULL,ended_ns BIGINT,exit_status BIGINT,exit_signal TEXT,status TEXT NOT NULL,PRIMARY KEY(id));
CREATE TABLE compiles(id INTEGER NOT NULL,recording_id INTEGER NOT NULL,compile_id TEXT NOT NULL,frame_id BIGINT,frame_compile_id BIGINT,attempt BIGINT NOT NULL,frame_name TEXT NOT NULL,frame_file TEXT NOT NULL,frame_line BIGINT NOT NULL,frame_source TEXT,backend TEXT,config_id INTEGER,status TEXT NOT NULL,started_ns BIGINT NOT NULL,ended_ns BIGINT,generation INTEGER DEFAULT '0' NOT NULL,PRIMARY KEY(id),FOREIGN KEY(recording_id) REFERENCES recordings(id)ON DELETE CASCADE,FOREIGN KEY(config_id) REFERENCES configs(id)ON DELETE SET NULL);
CREATE INDEX compiles_by_name ON compiles(recording_id,compile_id);
CREATE TABLE config_entries(config_id INTEGER NOT NULL,module TEXT NOT NULL,"key" TEXT NOT NULL,value TEXT NOT NULL,portable BOOLEAN NOT NULL,PRIMARY KEY(config_id,module,"key"),FOREIGN KEY(config_id) REFERENCES configs(id)ON DELETE CASCADE)WITHOUT ROWID;
CREATE TABLE environment(recording_id INTEGER NOT NULL,"key" TEXT NOT NULL,value TEXT NOT NULL,PRIMARY KEY(recording_id,"key"),FOREIGN KEY(recording_id) REFERENCES recordings(id)ON DELETE CASCADE)WITHOUT ROWID;
CREATE TABLE lost(recording_id INTEGER NOT NULL,reason TEXT NOT NULL,place TEXT NOT NULL,count BIGINT NOT NULL,message TEXT NOT NULL,PRIMARY KEY(recording_id,reason,place),FOREIGN KEY(recording_id) REFERENCES recordings(id)ON DELETE CASCADE)WITHOUT ROWID;
CREATE TABLE stack_pages(id INTEGER NOT NULL,recording_id INTEGER NOT NULL,digest TEXT NOT NULL,PRIMARY KEY(id),FOREIGN KEY(recording_id) REFERENCES recordings(id)ON DELETE CASCADE);
CREATE TABLE event_pages(id INTEGER NOT NULL,recording_id INTEGER NOT NULL,compile_id INTEGER,first_seq BIGINT NOT NULL,last_seq BIGINT NOT NULL,kinds TEXT NOT NULL,digest TEXT NOT NULL,PRIMARY KEY(id),FOREIGN KEY(recording_id) REFERENCES recordings(id)ON DELETE CASCADE,FOREIGN KEY(compile_id) REFERENCES compiles(id)ON DELETE CASCADE);
CREATE INDEX ix_event_pages_compile_id ON event_pages(compile_id);
CREATE TABLE events(id INTEGER NOT NULL,recording_id INTEGER NOT NULL,seq BIGINT NOT NULL,compile_id INTEGER,stage TEXT,kind TEXT NOT NULL,name TEXT NOT NULL,time_ns BIGINT NOT NULL,data TEXT NOT NULL,payload TEXT,cause BIGINT,stack INTEGER,PRIMARY KEY(id),CONSTRAINT one_event_per_position UNIQUE(recording_id,seq),FOREIGN KEY(recording_id) REFERENCES recordings(id)ON DELETE CASCADE,FOREIGN KEY(compile_id) REFERENCES compiles(id)ON DELETE CASCADE);
CREATE INDEX ix_events_compile_id ON events(compile_id);
CREATE TABLE frame_bundles(id INTEGER NOT NULL,compile_id INTEGER NOT NULL,status TEXT NOT NULL,reason TEXT NOT NULL,size BIGINT NOT NULL,digest TEXT,tensors TEXT,PRIMARY KEY(id),FOREIGN KEY(compile_id) REFERENCES compiles(id)ON DELETE CASCADE);
CREATE TABLE graphs(id INTEGER NOT NULL,compile_id INTEGER NOT NULL,stage TEXT NOT NULL,partition TEXT NOT NULL,ordinal BIGINT NOT NULL,nodes BIGINT NOT NULL,call_nodes BIGINT NOT NULL,inputs BIGINT NOT NULL,outputs BIGINT NOT NULL,digest TEXT NOT NULL,text_digest TEXT,PRIMARY KEY(id),FOREIGN KEY(compile_id) REFERENCES compiles(id)ON DELETE CASCADE);
CREATE INDEX ix_graphs_compile_id ON graphs(compile_id);
CREATE TABLE output_codes(id INTEGER NOT NULL,compile_id INTEGER NOT NULL,partition TEXT NOT NULL,ordinal BIGINT NOT NULL,digest TEXT NOT NULL,PRIMARY KEY(id),FOREIGN KEY(compile_id) REFERENCES compiles(id)ON DELETE CASCADE);
CREATE TABLE stages(id INTEGER NOT NULL,compile_id INTEGER NOT NULL,stage TEXT NOT NULL,partition TEXT NOT NULL,started_ns BIGINT NOT NULL,ended_ns BIGINT,status TEXT NOT NULL,PRIMARY KEY(id),FOREIGN KEY(compile_id) REFERENCES compiles(id)ON DELETE CASCADE);
CREATE INDEX ix_stages_compile_id ON stages(compile_id);
CREATE TABLE checkpoints(id INTEGER NOT NULL,compile_id INTEGER NOT NULL,entry TEXT NOT NULL,partition TEXT NOT NULL,ordinal BIGINT NOT NULL,digest TEXT NOT NULL,graph_id INTEGER,PRIMARY KEY(id),FOREIGN KEY(compile_id) REFERENCES compiles(id)ON DELETE CASCADE,FOREIGN KEY(graph_id) REFERENCES graphs(id)ON DELETE SET NULL);
CREATE INDEX ix_checkpoints_compile_id ON checkpoints(compile_id);
CREATE TABLE graph_targets(graph_id INTEGER NOT NULL,depth INTEGER NOT NULL,target TEXT NOT NULL,count BIGINT NOT NULL,PRIMARY KEY(graph_id,depth,target),FOREIGN KEY(graph_id) REFERENCES graphs(id)ON DELETE CASCADE)WITHOUT ROWID;
CREATE TABLE failures(id INTEGER NOT NULL,recording_id INTEGER NOT NULL,compile_id INTEGER,stage TEXT NOT NULL,partition TEXT NOT NULL,failure_class TEXT NOT NULL,exception_type TEXT NOT NULL,message TEXT NOT NULL,chain TEXT NOT NULL,traceback TEXT,signature TEXT NOT NULL,signature_digest TEXT NOT NULL,checkpoint_id INTEGER,time_ns BIGINT NOT NULL,PRIMARY KEY(id),FOREIGN KEY(recording_id) REFERENCES recordings(id)ON DELETE CASCADE,FOREIGN KEY(compile_id) REFERENCES compiles(id)ON DELETE CASCADE,FOREIGN KEY(checkpoint_id) REFERENCES checkpoints(id)ON DELETE SET NULL);

CREATE TABLE alembic_version(version_num VARCHAR(32)NOT NULL PRIMARY KEY)WITHOUT ROWID;

INSERT INTO alembic_version VALUES ('0010');
