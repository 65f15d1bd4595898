"""What trained weights leave as: Hugging Face folders, ONNX models, peft adapters."""
