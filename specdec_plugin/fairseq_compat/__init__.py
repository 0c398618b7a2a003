"""All that touches fairseq's internals: what is wrapped, replaced and repaired, and why.

Importing the plugin changes, for the whole process:

- ``checkpoint_utils.load_checkpoint_to_cpu`` reads weights only, and explains its errors in a
  sentence (:mod:`.checkpoints`). It keeps ``decoding`` and ``task`` of a hub's
  ``from_pretrained``, which fairseq drops when the checkpoint does not have them (:mod:`.hub`).
- ``checkpoint_utils.load_ema_from_checkpoint`` reads weights only, too (:mod:`.checkpoints`).
- ``checkpoint_utils.load_model_ensemble_and_task`` explains its errors in a sentence. With
  ``--decoding`` the parameters of its models are views of the checkpoint's file; meanwhile
  ``torch.load`` maps files in that thread (:mod:`.mapping`).
- ``file_io.PathManager.copy`` writes copies of checkpoints whole or not at all (:mod:`.saving`).
- ``get_features_or_waveform``, as fairseq's ``speech_to_text`` reads sounds, tells in a sentence
  which one it cannot read (:mod:`.speech`).
- ``distributed.utils._broadcast_object_slow`` sends objects between training processes without
  ``torch.load``, which refuses the configurations among them (:mod:`.checkpoints`).
- Every module of fairseq has an ``eval`` that knows plain values only, because a checkpoint's
  options reach it. A finder in ``sys.meta_path`` gives it to modules that are imported later
  (:mod:`.plain_values`).
- ``data_utils`` and two of fairseq's data sets see names that newer versions of NumPy have no more
  (:mod:`.numpy_names`).
- ``FastaDataset`` reads no file of which a shell would run a part of the name (:mod:`.fasta`).
- PyTorch's list of safe globals gets the classes that fairseq's checkpoints hold, and
  ``TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD`` is out of the environment while a checkpoint is loaded.
- ``specdec_plugin.__path__`` answers for every copy of the plugin, so that ``--user-dir`` may name
  any of them (:mod:`.user_dir`).
- The registry of architectures has an entry for a missing ``--arch``, which tells what to give
  (:mod:`.options`).
- Hydra prints our errors in a sentence, as its own, and without a traceback
  (:mod:`.hydra_train`).
- The options of ``specdec_translation`` are registered anew whenever another decoding method is
  (:mod:`.options`).
- In a console program of ours, Ctrl-C ends the process without a word until the program begins
  (:mod:`.early_interrupts`).
- Python's garbage collector pauses while the plugin is imported, and then counts what there is as
  old. In a console program of ours it leaves what was imported alone (:mod:`.collector`).
- Where the plugin imports fairseq, two modules that judge classifiers have stand-ins for metrics of
  scikit-learn and SciPy, which import them when they are called (:mod:`.importing`).
- On Linux from Python 3.14 on, new processes of ``multiprocessing`` are forks. This begins when a
  command line of fairseq is parsed, or a training (:mod:`.workers`).
- PyTorch's number of threads is at most the CPU quota of a container (:mod:`..engine.threads`).
- The loggers of hydra and matplotlib are set to warnings, because fairseq lets every logger speak.
  The logger of fairseq's ``text_to_speech`` drops its notice that tensorboardX is missing, and
  that of its tasks what it notes of iterators for calls from Python (:mod:`.quiet`).

Four objects of fairseq are changed:

- The parser of a command line checks generation options when it has parsed them, and takes the
  method's beam where none is typed; fairseq would load data and models first
  (:mod:`.parsed_options`). Without ``--num-workers`` no other process reads data where threads need
  all processors. It also lets Ctrl-C end the process with a line, and a closed pipe without a
  word (:mod:`.interrupts`). It keeps Python's garbage collector away from what was imported
  (:mod:`.collector`).
- ``buffered_read`` of fairseq-interactive reads every line, also where its bytes are not UTF-8
  (:mod:`.input_lines`).
- ``generate`` of fairseq's own search with ``--vocab-clusters`` puts another projection in the
  model's place while it runs (:mod:`.search`).
- ``load_state_dict`` of the models that our tasks train explains a checkpoint of another shape,
  which fairseq's trainer would tell in a traceback (:mod:`.pairing`).

Our tasks override methods of fairseq's:

- ``get_batch_iterator`` and others, because fairseq loses lines, and keeps those that it is given
  for ever (:mod:`.every_line`);
- ``get_batch_iterator`` again, because a resumed training would have other batches
  (:mod:`.resumed_order`);
- ``inference_step``, because fairseq-interactive keeps the numbers of sentences to itself
  (:mod:`.sentence_numbers`);
- ``load_dataset``, because damaged data end in tracebacks (:mod:`.splits`, :mod:`.speech`);
- ``train_step``, because fairseq's mixed precision needs CUDA (:mod:`.autocast`);
- in :mod:`..tasks`, mBART's ``args``, which fairseq reads and never sets, and
  ``--keep-inference-langtok``, which fairseq looks for where it never is.
"""
